"""Measurements on a GPU. torch and triton are imported by the modules, never by this package."""
