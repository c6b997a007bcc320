"""Tests of attribution methods against interventions."""
