"""There is no front end for MXNet: importing this module raises ImportError, with what works instead."""

raise ImportError(
    "Gradbus has no front end for MXNet, whose last release (1.9.1) imports only with numpy==1.23.5 on Python 3.11: it "
    "uses np.bool, which NumPy 1.24 removed | next: exchange gradients as NumPy arrays with gradbus.allreduce(), or "
    "use gradbus.torch"
)
