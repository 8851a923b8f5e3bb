"""Figures that the paper prints, for comparison; percentages throughout.

T. W. Tsai, C. Li, J. Zhu, "MiCE: Mixture of Contrastive Experts for Unsupervised Image
Clustering", ICLR 2021.
"""

SETS = ("cifar10", "cifar100-20", "stl10", "imagenet-dog")
# Table 1: NMI, ACC and ARI of each set in turn. The first sector is the paper's own
# collection from the literature, the second its own runs, five of each.
_TABLE_1 = """
k-means           8.7 22.9  4.9   8.4 13.0  2.8  12.5 19.2  6.1   5.5 10.5  2.0
SC               10.3 24.7  8.5   9.0 13.6  2.2   9.8 15.9  4.8   3.8 11.1  1.3
AE               23.9 31.4 16.9  10.0 16.5  4.8  25.0 30.3 16.1  10.4 18.5  7.3
DAE              25.1 29.7 16.3  11.1 15.1  4.6  22.4 30.2 15.2  10.4 19.0  7.8
SWWAE            23.3 28.4 16.4  10.3 14.7  3.9  19.6 27.0 13.6   9.4 15.9  7.6
GAN              26.5 31.5 17.6  12.0 15.3  4.5  21.0 29.8 13.9  12.1 17.4  7.8
VAE              24.5 29.1 16.7  10.8 15.2  4.0  20.0 28.2 14.6  10.7 17.9  7.9
JULE             19.2 27.2 13.8  10.3 13.7  3.3  18.2 27.7 16.4   5.4 13.8  2.8
DEC              25.7 30.1 16.1  13.6 18.5  5.0  27.6 35.9 18.6  12.2 19.5  7.9
DAC              39.6 52.2 30.6  18.5 23.8  8.8  36.6 47.0 25.7  21.9 27.5 11.1
DCCM             49.6 62.3 40.8  28.5 32.7 17.3  37.6 48.2 26.2  32.1 38.3 18.2
IIC                 - 61.7    -     - 25.7    -     - 49.9    -     -    -    -
DHOG             58.5 66.6 49.2  25.8 26.1 11.8  41.3 48.3 27.2     -    -    -
AttentionCluster 47.5 61.0 40.2  21.5 28.1 11.6  44.6 58.3 36.3  28.1 32.2 16.3
MMDC             57.2 70.0    -  25.9 31.2    -  49.8 61.1    -     -    -    -
PICA             59.1 69.6 51.2  31.0 33.7 17.1  61.1 71.3 53.1  35.2 35.2 20.1
MoCo(mean)       66.0 74.7 59.3  38.8 39.5 24.0  60.5 70.7 53.0  34.2 30.8 18.4
MoCo(sd)          0.6  1.7  0.9   0.2  0.1  0.4   0.9  2.0  0.8   0.3  1.7  0.9
MiCE(mean)       73.5 83.4 69.5  43.0 42.2 27.7  61.3 72.0 53.2  39.4 39.0 24.7
MiCE(sd)          0.2  0.2  0.3   0.5  1.4  0.4   1.2  1.8  2.4   1.8  3.0  2.4
MoCo(best)       66.9 77.6 60.8  39.0 39.7 24.2  61.5 72.8 52.4  34.7 33.8 19.7
MiCE(best)       73.7 83.5 69.8  43.6 44.0 28.0  63.5 75.2 57.5  42.3 43.9 28.6
"""


def _table_1():
    table = {name: {} for name in SETS}
    for line in _TABLE_1.strip().splitlines():
        method, *cells = line.split()
        values = [None if cell == "-" else float(cell) for cell in cells]
        for i, name in enumerate(SETS):
            nmi, acc, ari = values[3 * i : 3 * i + 3]
            table[name][method] = {"nmi": nmi, "acc": acc, "ari": ari}
    return table


TABLE_1 = _table_1()
# Table 3, ACC on CIFAR-100 with 20 superclasses; the last from the appendix, "Extra
# ablation studies", which says CIFAR-10 there of what Table 3 has as CIFAR-100's 21.3.
TABLE_3 = {
    "MiCE": 42.2,
    "(1) A3": 40.7,
    "(2) A4": 39.3,
    "(3) A3 + A4": 33.6,
    "(4) A5": 17.0,
    "(a) no analytical update": 21.3,
    "(b) no gradient update": 41.0,
    "(c) uniform gating prototypes": 41.0,
    "(d) learned gating prototypes": 42.0,
    "appendix: gradient and passes": 42.3,
}
# Table "Comparing SCAN and MiCE" of the appendix, ACC on CIFAR-10.
SCAN = {
    "SCAN-Loss (SimCLR)": 78.7,
    "SCAN-Loss (RA)": 81.8,
    "MiCE": 83.4,
    "SCAN-Loss (SimCLR) + Self-Labeling (SimCLR)": 10.0,
    "SCAN-Loss (SimCLR) + Self-Labeling (RA)": 87.4,
    "SCAN-Loss (RA) + Self-Labeling (RA)": 87.6,
    "MiCE pre-training + MiCE": 89.3,
    "MiCE pre-training + MiCE (RA)": 88.3,
    "MiCE pre-training + MiCE (SimCLR)": 90.3,
}
# Figure "Visualization of the image embeddings": ACC after these epochs, CIFAR-10.
EMBEDDINGS = {1: 12.4, 500: 70.2, 1000: 83.5}
PERPLEXITY = 200  # appendix, of all t-SNE
LARGEST_COSINE = 0.25  # appendix, of the two sets of prototypes, in absolute value
# Appendix, "Training time": hours for 1,000 epochs of CIFAR-10, one GTX 1080 Ti.
HOURS = {"MoCo": 17, "MiCE": 30, "passes": 394}
