# SPDX-License-Identifier: Apache-2.0
"""Variants of the rotary embedding, from the papers and the published modelling code.

A pair of elements is one complex number here, as in LLaMA's code, and a rotation is a product.
"""

import math

import torch


def frequencies(base, dims):
    """RoFormer (Su et al. 2021): base^(-2i / dims)."""
    return base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def llama3(frequency, factor, low, high, original):
    """Llama 3.1: scales frequencies by the ratio of their wavelength to the original context."""
    out = []
    for f in frequency.tolist():
        wavelength = 2 * math.pi / f
        if wavelength < original / high:
            out.append(f)
        elif wavelength > original / low:
            out.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return torch.tensor(out, dtype=torch.float64)


def yarn(base, dims, factor, original, beta_fast=32.0, beta_slow=1.0, rounded=True):
    """YaRN (Peng et al. 2023), section 3.2 and the authors' code."""
    def index(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = index(beta_fast), index(beta_slow)
    if rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    ramp = (torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)
    ramp = ramp.clamp(0, 1)
    f = frequencies(base, dims)
    return f / factor * ramp + f * (1 - ramp)


def turn(x, frequency, interleaved=False, magnitude=1.0):
    """Rotates the first elements of [.., seq, head_dim], two per frequency; the others are
    unchanged."""
    dims, half = 2 * len(frequency), len(frequency)
    turning, rest = x[..., :dims], x[..., dims:]
    if interleaved:
        pairs = torch.view_as_complex(turning.unflatten(-1, (half, 2)).contiguous())
    else:
        pairs = torch.complex(turning[..., :half], turning[..., half:])
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequency.to(x.dtype)
    pairs = pairs * magnitude * torch.complex(angle.cos(), angle.sin())
    if interleaved:
        turning = torch.view_as_real(pairs).flatten(-2)
    else:
        turning = torch.cat([pairs.real, pairs.imag], -1)
    return torch.cat([turning, rest], -1)
