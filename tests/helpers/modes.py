"""PyTensor's modes that compile nothing."""

from pytensor.compile.mode import Mode

REWRITTEN = Mode(linker="py", optimizer="fast_run")
PLAIN = Mode(linker="py", optimizer=None)
