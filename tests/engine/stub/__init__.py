"""Stand-ins for packages that a CPU server only imports; this folder goes on the PYTHONPATH of SGLang."""
