"""Recomputes golden vectors with this installation, one file a kind; FORMAT.md has the format.

    report = verify_folder("goldens")
    report.kinds, report.first_mismatches, report.problems, report.unknown, report.is_equal

A kind is `verify/NAME.py` that ends in `VERIFIER = Verifier(...)`; see `_verifier.py`.
"""

from prefixaudit.verify._folder import (
    VERIFIERS,
    FileProblem,
    VerificationReport,
    VerifiedKind,
    verify_folder,
)
from prefixaudit.verify._verifier import GoldenFile, Mismatch, NotReproduced, Tally, Verifier

__all__ = [
    "VERIFIERS",
    "FileProblem",
    "GoldenFile",
    "Mismatch",
    "NotReproduced",
    "Tally",
    "VerificationReport",
    "VerifiedKind",
    "Verifier",
    "verify_folder",
]
