"""Locations coded by the old exponent: smaller frames for receivers that hold the old bits."""
