"""``python -m headpond`` is the same as ``headpond``."""

from headpond.cli import main

if __name__ == "__main__":
    main()
