"""What is chosen before a chain's first draw; ``run.py`` takes the steps in their order.

They have the numbers of the mathematics page: 1 the start (``start``), 2 the rough centre
(``modes``, ``normal_fit``), 3 the widths (``whiten``, ``directions``, ``shared_index``; ``bulk``
leads through both), 4 the noise (``noise``, ``shared_noise``, ``batches``), 5 the step size
(``bounds``; ``plan`` leads through both), 6 the burn-in (``rounds``), 7 the check (``check``).
"""
