"""Tasks: the built-in ones and those a person names by path. Task modules are read here, never run."""
