def share(first, layer, own):
    """Lets a layer use the parameters of an earlier one, except its own."""
    for name, parameter in first.named_parameters():
        if name not in own:
            module, _, leaf = name.rpartition(".")
            setattr(layer.get_submodule(module), leaf, parameter)
