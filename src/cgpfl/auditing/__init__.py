"""Audits: what a run gives away about its clients, by attacking it."""

from cgpfl.auditing.attack import Audit, audit

__all__ = ["Audit", "audit"]
