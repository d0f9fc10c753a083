"""Example applications, each one run by a test."""
