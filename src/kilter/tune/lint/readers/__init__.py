"""One reader a form of text: each gives the settings of a text in their order, with where they hold and how they are edited."""
