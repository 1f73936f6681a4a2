"""The delta's way to other machines: object stores and relay trees."""
