def balance_loss(logits, chosen):
    """Returns n_expert times the sum over experts of their share of the choices times their mean probability."""
    probabilities = torch.softmax(logits.flatten(0, -2), -1)
    share = F.one_hot(chosen, logits.shape[-1]).float().mean((0, 1))
    return logits.shape[-1] * (share * probabilities.mean(0)).sum()


def balance_losses(model):
    """Returns the sum over all experts of the last call of the model."""
    return sum(module.balance_loss for module in model.modules() if hasattr(module, "balance_loss"))
