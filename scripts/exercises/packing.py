"""Tarballs: for students, everything that solving exercises needs and no answer; for teachers, the answers."""
