"""midstream: continuous queries whose plan can be replaced while they run."""
