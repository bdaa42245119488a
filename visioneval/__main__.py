"""``python -m visioneval``."""

from visioneval.cli import main

if __name__ == "__main__":
    main()
