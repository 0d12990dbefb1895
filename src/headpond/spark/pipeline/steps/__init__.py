"""The delivery steps, one a file: DataFrames in, DataFrames out."""
