"""Transport: how a word travels from agent to agent."""
