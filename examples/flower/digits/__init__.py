"""Secure federated averaging and label propagation on digits."""
