"""A launcher for Hydra's multirun: `python train.py -m hydra/launcher=gridengine lr=0.1,0.01`."""
