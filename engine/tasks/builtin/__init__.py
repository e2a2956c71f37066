"""The built-in tasks, one module each in the KernelBench format.

The constants of a module give the large form, which is timed or modelled; `SMALL` replaces them for the
form that Triton's interpreter can check in a second or two.
"""
