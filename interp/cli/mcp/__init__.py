"""Server of the Model Context Protocol: tools and resources for agents."""
