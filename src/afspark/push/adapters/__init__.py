"""Packets and lines from the network as rows for a receiver: UDP datagrams (syslog, NetFlow) and lines over TCP."""
