"""Engine plug-ins for the CPU; this folder goes on the PYTHONPATH of vLLM."""
