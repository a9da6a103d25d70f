"""Transactions: their coordinator and its markers."""
