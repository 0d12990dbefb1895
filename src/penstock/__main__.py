"""``python -m penstock`` is the same as ``penstock``."""

from penstock.cli import main

if __name__ == "__main__":
    main()
