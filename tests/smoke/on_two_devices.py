"""Run the command line in this process, which sees its CPU as two. Runs in a project's environment.

on_two_devices.py PACKAGE ARGUMENT...
"""

import sys
from importlib import import_module

cli = import_module(f"{sys.argv[1]}.cli")  # first, for TensorFlow to be quiet

import tensorflow as tf  # noqa: E402

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
sys.exit(cli.main(sys.argv[2:]))
