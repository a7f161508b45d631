"""``python -m crdebug``."""

from crdebug.cli import main

if __name__ == "__main__":
    main(prog_name="crdebug")
