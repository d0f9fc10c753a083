"""Faults under load: what breaks around the library, how fast it is back, and whether a job was harmed."""
