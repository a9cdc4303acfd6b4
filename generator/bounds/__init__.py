"""Proof that every load and store of a rendered kernel stays inside its operand, for all sizes and programs."""

from generator.bounds.judge import NEVER_REACHED
from generator.bounds.order import Order
from generator.bounds.proof import Access, Proof, prove
from generator.bounds.source import NotUnderstood

__all__ = ["NEVER_REACHED", "Access", "NotUnderstood", "Order", "Proof", "prove"]
