"""Vocabularies of pieces: byte-level BPE learned from a share of the training text, and texts to try it on.

Byte-pair encoding (Sennrich et al., 2016) starts from single signs and joins the pair of neighbours that is most
frequent, again and again, until the vocabulary is full. From bytes (GPT-2, 2019), nothing is ever unknown: what was
never joined is read byte by byte. The pieces stay within GPT-2's words, so that none spans a space inside.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from morph.errors import MorphError
from morph.lab.tasks import Text

BLOCK = 2**16  # bytes; the training text is drawn in blocks of that many
SHARE = 4  # a tokenizer learns from every fourth block, on average

SENTENCES = {
    "English": "The river was high after three days of rain. My sister counts the boats every morning. "
    "Tomorrow we want to bake bread together. Nobody knows how old the bridge is.",
    "German": "Nach drei Tagen Regen stand der Fluss hoch. Meine Schwester zählt jeden Morgen die Boote. "
    "Morgen wollen wir zusammen Brot backen. Niemand weiß, wie alt die Brücke ist.",
    "Russian": "После трёх дней дождя река поднялась высоко. Моя сестра каждое утро считает лодки. "
    "Завтра мы хотим вместе испечь хлеб. Никто не знает, сколько лет этому мосту.",
    "Greek": "Το ποτάμι ήταν ψηλά μετά από τρεις μέρες βροχής. Η αδελφή μου μετράει τις βάρκες κάθε πρωί. "
    "Αύριο θέλουμε να ψήσουμε μαζί ψωμί. Κανείς δεν ξέρει πόσο παλιά είναι η γέφυρα.",
    "Arabic": "كان النهر مرتفعًا بعد ثلاثة أيام من المطر. أختي تعدّ القوارب كل صباح. "
    "غدًا نريد أن نخبز الخبز معًا. لا أحد يعرف كم عمر الجسر.",
    "Hindi": "तीन दिन की बारिश के बाद नदी का पानी ऊँचा था। मेरी बहन हर सुबह नावें गिनती है। "
    "कल हम साथ मिलकर रोटी बनाना चाहते हैं। कोई नहीं जानता कि पुल कितना पुराना है।",
    "Chinese": "下了三天雨，河水涨得很高。我妹妹每天早上数船。明天我们想一起烤面包。没有人知道这座桥有多老。",
    "Japanese": "三日間の雨のあと、川の水位は高かった。妹は毎朝、船を数えている。"
    "明日は一緒にパンを焼きたい。その橋がどれほど古いのか、誰も知らない。",
}
"""Four plain sentences, written for this: the same in each language."""
_DOCSTRING = re.compile(r'^[ \t]*(?:def|class) [^\n]*:\n[ \t]+r?"""(.*?)"""', re.MULTILINE | re.DOTALL)


@lru_cache(maxsize=32)
def learned(task: Text, vocabulary: int, seed: int) -> Any:
    """A `tokenizers.Tokenizer` of `vocabulary` pieces, learned from the blocks that the seed draws.

    Raises:
        MorphError: below 256 pieces, one for each byte, or without the library tokenizers.
    """
    if vocabulary < 256:
        raise MorphError(f"vocabulary is {vocabulary}, but each of the 256 bytes needs a piece: give 256 or more")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a cell has one thread
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise MorphError("learning a vocabulary needs the library tokenizers: pip install -e '.[hf]'") from None
    words = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = words
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=words.alphabet(), show_progress=False, special_tokens=[]
    )
    made.train_from_iterator(drawn(task, seed), trainer)
    if made.get_vocab_size() != vocabulary:
        raise MorphError(f"the text gives {made.get_vocab_size()} pieces and not {vocabulary}: ask for fewer")
    return made


def drawn(task: Text, seed: int) -> list[str]:
    """A quarter of the training text's blocks, by the seed; what is cut within a sign is left out."""
    text = task.corpus().train
    n = -(-text.size // BLOCK)
    chosen = np.random.Philox(np.random.SeedSequence([seed, 4])).random_raw(n).argsort(kind="stable")
    return [_text(text[b * BLOCK : (b + 1) * BLOCK]) for b in sorted(chosen[: max(1, n // SHARE)])]


def held_out_text(task: Text) -> str:
    """The held-out files, which no tokenizer learned from."""
    return _text(task.corpus().validation)


def docstrings(task: Text) -> str:
    """The English in them: what stands under definitions between three quotes."""
    return "\n".join(_DOCSTRING.findall(held_out_text(task)))


@lru_cache(maxsize=1)
def digits(count: int = 5000) -> str:
    """Whole numbers of up to 12 digits, drawn at random, a space between them; the same for all."""
    raw = np.random.Philox(np.random.SeedSequence([5])).random_raw(2 * count)
    return " ".join(str(int(n) % 10 ** (int(length) % 12 + 1)) for n, length in raw.reshape(count, 2))


def tokens_of(tokenizer: Any, text: str) -> int:
    """How many pieces a text takes."""
    return len(tokenizer.encode(text).ids)


def bytes_per_token(tokenizer: Any, text: str) -> float:
    """UTF-8 bytes of a text over its pieces."""
    return len(text.encode()) / tokens_of(tokenizer, text)


def _text(tokens: np.ndarray) -> str:
    return tokens.tobytes().decode("utf-8", errors="ignore")
