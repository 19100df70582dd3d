"""The operators of a running plan: one file each, behind ``operator.Operator``."""
