"""Tests of the command sk-mice: a file for each command, or step of the fit."""
