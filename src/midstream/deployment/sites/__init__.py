"""Deployments on sites: directories and files through which the processes of a deployment exchange messages."""
