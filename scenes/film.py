"""From a film without pauses to one that rests on every still, with chapters and subtitles.

A pause costs nothing: packets are copied with a gap between time stamps, so the picture stands until the next one. No
frame is drawn or encoded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av


@dataclass(frozen=True)
class Cue:
    """One still in the film, in seconds: it is reached from `start`, stands from `settled`, and ends at `end`."""

    key: str
    subtitle: str
    start: float
    settled: float
    end: float


def timeline(
    keys: Sequence[str], subtitles: Sequence[str], moves: Sequence[float], holds: Sequence[float]
) -> list[Cue]:
    """Cues one after another: still i is moved to for `moves[i]` seconds and stands for `holds[i]`."""
    cues, now = [], 0.0
    for key, subtitle, move, hold in zip(keys, subtitles, moves, holds, strict=True):
        cues.append(Cue(key, subtitle, now, now + move, now + move + hold))
        now += move + hold
    return cues


def with_pauses(film: Path, out: Path, starts: Sequence[float], cues: Sequence[Cue], title: str) -> None:
    """Copy `film`, whose still i begins at `starts[i]`, to `out` with the cues' pauses and chapters.

    Every still's part begins with a key frame (Manim encodes each animation by itself), so a player that seeks to a
    chapter lands exactly on it.
    """
    with av.open(str(film)) as source, av.open(str(out), "w", options={"movflags": "faststart"}) as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream)
        target.metadata["title"] = title
        base = stream.time_base
        assert base is not None
        target.set_chapters([
            {
                "id": i, "start": round(cue.start * 1000), "end": round(cue.end * 1000),
                "time_base": Fraction(1, 1000), "metadata": {"title": cue.key},
            }
            for i, cue in enumerate(cues)
        ])  # fmt: skip
        packets = [packet for packet in source.demux(stream) if packet.dts is not None]
        frame = min(packet.duration for packet in packets if packet.duration)
        for packet in packets:
            assert packet.pts is not None and packet.dts is not None
            part = sum(float(packet.pts * base) > start - 0.5 * float(frame * base) for start in starts[1:])
            delay = round((cues[part].start - starts[part]) / float(base))
            packet.pts, packet.dts = packet.pts + delay, packet.dts + delay
            packet.stream = copy
        last = max(packets, key=lambda packet: packet.pts or 0)
        last.duration = round(cues[-1].end / float(base)) - (last.pts or 0)
        for packet in packets:
            target.mux(packet)


@dataclass(frozen=True)
class Part:
    """A film to be joined to others: its file, and what stands in it."""

    file: Path
    cues: Sequence[Cue]

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.cues[-1].end


def joined(parts: Sequence[Part], out: Path, title: str, chapters: Sequence[tuple[str, float, float]]) -> None:
    """Copy films that were encoded alike one after another into `out`; nothing is encoded again.

    Args:
        chapters: names with their first and last second.

    Raises:
        ValueError: when a part has another size, rate or encoding than the first.
    """
    with av.open(str(parts[0].file)) as first, av.open(str(out), "w", options={"movflags": "faststart"}) as target:
        model = first.streams.video[0]
        copy = target.add_stream_from_template(model)
        target.metadata["title"] = title
        target.set_chapters([
            {
                "id": i, "start": round(start * 1000), "end": round(end * 1000),
                "time_base": Fraction(1, 1000), "metadata": {"title": name},
            }
            for i, (name, start, end) in enumerate(chapters)
        ])  # fmt: skip
        now = 0.0
        for part in parts:
            with av.open(str(part.file)) as source:
                stream = source.streams.video[0]
                if _encoding(stream) != _encoding(model):
                    raise ValueError(f"{part.file} is encoded in another way than {parts[0].file}")
                assert stream.time_base is not None
                delay = round(now / float(stream.time_base))
                for packet in source.demux(stream):
                    if packet.pts is None or packet.dts is None:
                        continue
                    packet.pts, packet.dts, packet.stream = packet.pts + delay, packet.dts + delay, copy
                    target.mux(packet)
            now += part.seconds


def _encoding(stream: av.VideoStream) -> tuple[object, ...]:
    """What must be equal for packets of two streams to stand in one."""
    context = stream.codec_context
    return context.name, stream.width, stream.height, stream.time_base, context.pix_fmt, context.extradata


def later(cues: Sequence[Cue], seconds: float) -> list[Cue]:
    """The same cues, so many seconds later."""
    return [Cue(c.key, c.subtitle, c.start + seconds, c.settled + seconds, c.end + seconds) for c in cues]


def as_webm(film: Path, out: Path) -> None:
    """Encode a film anew as WebM (VP9), for viewers that play no H.264; time stamps, and so the pauses, stay."""
    with av.open(str(film)) as source, av.open(str(out), "w") as target:
        stream = source.streams.video[0]
        options = {"crf": "34", "b": "0", "deadline": "realtime", "cpu-used": "8"}
        copy = target.add_stream("libvpx-vp9", rate=stream.average_rate, options=options)
        copy.width, copy.height, copy.pix_fmt = stream.width, stream.height, "yuv420p"
        copy.time_base = copy.codec_context.time_base = Fraction(1, 1000)
        target.metadata.update(source.metadata)
        target.set_chapters(source.chapters())
        for picture in source.decode(stream):
            assert picture.pts is not None and picture.time_base is not None
            picture.pts, picture.time_base = round(picture.pts * picture.time_base * 1000), Fraction(1, 1000)
            target.mux(copy.encode(picture))
        target.mux(copy.encode(None))


def subtitles(cues: Sequence[Cue]) -> str:
    """The cues as SubRip text."""
    blocks = [
        f"{i}\n{_clock(cue.start)} --> {_clock(cue.end - 0.001)}\n{cue.subtitle}\n" for i, cue in enumerate(cues, 1)
    ]
    return "\n".join(blocks)


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d},{thousandths:03d}"
