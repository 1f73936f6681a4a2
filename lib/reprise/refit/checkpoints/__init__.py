"""Whole checkpoints: safetensors files and Hugging Face folders as deltas, rebuilt byte for byte."""
