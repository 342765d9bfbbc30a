"""Unsafe sharing: rules, predicates and findings."""
