"""Bytes, seconds and what is made of them: records, tables and plots."""
