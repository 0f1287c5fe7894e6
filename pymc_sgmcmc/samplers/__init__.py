"""The algorithms, one small file each."""
