"""The numbers printed in the paper: test accuracy in percent.

Tang, Guo, Guo: Personalized Federated Learning with Contextualized Generalization. IJCAI 2022.
"""

from __future__ import annotations

SETTINGS = ("mnist-mlr", "mnist-dnn", "fmnist-mlr", "fmnist-dnn", "cifar10-cnn")

TABLE_1: dict[str, tuple[float, ...]] = {
    "fedavg": (88.63, 91.05, 82.44, 83.45, 46.34),
    "ifca": (95.27, 96.19, 91.55, 92.56, 60.22),
    "l2sgd": (89.46, 92.48, 88.59, 90.64, 58.68),
    "apfl": (92.69, 95.59, 92.60, 93.76, 72.12),
    "pfedme": (91.90, 92.20, 85.49, 86.87, 68.88),
    "per-fedavg": (92.44, 93.54, 87.17, 87.57, 71.46),
    "ditto": (89.96, 92.85, 88.62, 90.56, 69.56),
    "cgpfl-4": (95.65, 96.55, 92.65, 93.56, 72.78),
    "cgpfl-heur": (97.41, 98.03, 95.18, 96.00, 74.75),
}
"""Method → one number for each of ``SETTINGS``."""

LAMBDAS: dict[str, tuple[int, ...]] = {
    "mnist-mlr": (11, 12, 13, 14, 15, 16, 17, 18, 19),
    "mnist-dnn": (9, 10, 11, 12, 13, 14, 15, 16, 17),
    "fmnist-mlr": (9, 10, 11, 12, 13, 14, 15, 16, 17),
    "fmnist-dnn": (7, 8, 9, 10, 11, 12, 13, 14, 15),
}
"""Table 2's values of λ."""

TABLE_2: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist-mlr": {
        "pfedme": (91.46, 91.90, 92.19, 92.54, 92.80, 93.00, 93.15, 93.16, 93.04),
        "cgpfl-2": (93.43, 93.34, 93.62, 93.88, 94.16, 93.69, 93.52, 93.52, 93.31),
        "cgpfl-4": (95.49, 95.65, 95.19, 95.47, 95.60, 95.77, 96.49, 94.85, 94.53),
        "cgpfl-heur": (97.46, 97.41, 96.27, 96.32, 96.34, 96.33, 96.32, 96.33, 96.25),
    },
    "mnist-dnn": {
        "pfedme": (91.21, 91.54, 91.86, 92.21, 92.43, 92.79, 93.05, 93.30, 93.24),
        "cgpfl-2": (94.11, 94.42, 94.71, 93.90, 94.14, 94.36, 94.49, 93.34, 93.36),
        "cgpfl-4": (96.17, 96.37, 96.57, 96.55, 95.87, 95.99, 96.01, 95.45, 95.49),
        "cgpfl-heur": (97.69, 97.86, 98.00, 98.03, 97.95, 97.96, 98.20, 98.14, 98.16),
    },
    "fmnist-mlr": {
        "pfedme": (85.03, 85.26, 85.42, 85.49, 85.49, 85.28, 85.16, 84.76, 84.22),
        "cgpfl-2": (90.29, 87.70, 87.93, 88.00, 87.72, 87.53, 87.65, 86.94, 85.19),
        "cgpfl-4": (92.50, 92.84, 92.94, 92.65, 92.63, 92.44, 92.42, 92.17, 92.20),
        "cgpfl-heur": (95.46, 95.44, 95.45, 95.36, 94.61, 94.40, 94.35, 94.41, 94.19),
    },
    "fmnist-dnn": {
        "pfedme": (84.65, 85.20, 85.86, 86.28, 86.70, 86.87, 87.09, 87.10, 86.66),
        "cgpfl-2": (87.69, 88.15, 88.72, 89.13, 89.59, 89.75, 91.15, 89.25, 88.93),
        "cgpfl-4": (92.26, 92.89, 92.71, 92.86, 93.03, 93.56, 93.21, 93.44, 92.83),
        "cgpfl-heur": (95.60, 95.73, 95.84, 95.94, 95.98, 96.00, 95.98, 95.95, 95.83),
    },
}
"""Setting → method → one number for each λ.

At λ = 12 they are Table 1's but for two: pFedMe on MNIST-DNN (92.21, there 92.20), CGPFL-Heur on FMNIST-MLR (95.36,
there 95.18).
"""


def table_1(setting: str, method: str) -> float | None:
    """Table 1's number, if it has one (local training is not in it)."""
    return TABLE_1[method][SETTINGS.index(setting)] if method in TABLE_1 else None
