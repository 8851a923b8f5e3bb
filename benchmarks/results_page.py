"""Write the pages of results/, and the table in README.md, from the JSON files.

python benchmarks/results_page.py          # write
python benchmarks/results_page.py --check  # exit 1 if they are not up to date
"""

import argparse
import sys
from pathlib import Path

from pages import confidence, em, features, files, gpu, overview, paper, tables
from pages.tables import BASELINE, MICE, START

README = Path(__file__).resolve().parents[1] / "README.md"
MARKS = ("<!-- benchmarks/results_page.py -->", "<!-- end -->")
IN_README = {
    "compare_digits": "digits, 1,797 of 8 x 8",
    "compare_digits_710_unbalanced": "710 digits, the smallest class a tenth",
    "compare_fashion_mnist_10000_24_epochs": "Fashion-MNIST, 10,000 images",
    "compare_fashion_mnist_3850_unbalanced": "3,850 of it, the smallest class a tenth",
    "compare_cifar10_jpeg_10000": "CIFAR-10 (JPEG), 10,000 images",
}


def readme_table():
    """Five rows for the README: MiCE, what its start alone reaches, the baseline."""
    rows = []
    for name, label in IN_README.items():
        results = files.read(name)["results"]
        cells = []
        for method in (MICE, START, BASELINE):
            worst = min(row["acc"] for row in results[method])
            cells.append(f"{tables.mean(results[method], 'acc')} ({worst:.3f})")
        rows.append((label, *cells, len(results[MICE]), tables.seconds(results[MICE])))
    starts = ("MiCE", "its start alone", "MoCo + k-means")
    return tables.table(("data", *starts, "seeds", "seconds of a fit"), *rows)


def readme():
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{readme_table()}\n{MARKS[1]}{after}"


PAGES = {
    "README.md": overview,
    "features.md": features,
    "em.md": em,
    "confidence.md": confidence,
    "gpu.md": gpu,
    "paper.md": paper,
}


def pages():
    """The text of each page, by the name of its file."""
    return {name: "\n\n".join(of.page()) + "\n" for name, of in PAGES.items()}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    texts = {files.RESULTS / name: text for name, text in pages().items()}
    for path, text in (texts | {README: readme()}).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            sys.exit(f"{path} must hold the JSON files' figures: run {__file__}")
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
