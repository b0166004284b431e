"""Maps in one line: from scattered or gappy values to a labelled grid with its spread."""
