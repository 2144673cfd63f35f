"""The broker: stores, routes and delivers messages for clients, and keeps their groups and offsets."""
