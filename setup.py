"""What pyproject.toml cannot say: a wheel holds a copy of the notebooks and docs, which lie beside the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
SHIPPED = ("notebooks/*.ipynb", "notebooks/solutions/*.py", "docs/*.md", "docs/lab/*.png")


class WithNotebooks(build_py):
    """Also copies `SHIPPED` to `morph/_shipped`; an editable install uses the files where they are."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for pattern in SHIPPED:
            for path in sorted(HERE.glob(pattern)):
                target = Path(self.build_lib, "morph", "_shipped", path.relative_to(HERE))
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": WithNotebooks})
