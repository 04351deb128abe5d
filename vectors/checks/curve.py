"""Edwards25519: ristretto255 (RFC 9496) and Ed25519 (RFC 8032)."""
import functools
import hashlib

from .primitives import P, Refused, need, number, pieces

ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1
ZERO = (0, 1, 1, 0)


def negative(x):
    return x % P & 1


def absolute(x):
    return -x % P if negative(x) else x % P


def sqrt_ratio(u, v):
    v3 = v * v * v % P
    r = u * v3 * pow(u * v3 * v3 * v % P, (P - 5) // 8, P) % P
    check = v * r * r % P
    square = check in (u % P, -u % P)
    if check in (-u % P, -u * ROOT % P):
        r = r * ROOT % P
    return square, absolute(r)


INVSQRT = sqrt_ratio(1, -1 - D)[1]
ADD = P - sqrt_ratio(-D - 1, 1)[1]  # the odd square root of a·d − 1, a = −1


# Points in extended coordinates.

def add(p, q):
    x1, y1, z1, t1 = p
    x2, y2, z2, t2 = q
    a, b = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2)
    c, d = 2 * D * t1 % P * t2, 2 * z1 * z2
    e, f, g, h = (b - a) % P, (d - c) % P, (d + c) % P, (b + a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def twice(p):
    x, y, z, _ = p
    a, b = x * x % P, y * y % P
    e, g = ((x + y) ** 2 - a - b) % P, b - a
    f, h = g - 2 * z * z, -a - b
    return e * f % P, g * h % P, f * g % P, e * h % P


def minus(p):
    return -p[0] % P, p[1], p[2], -p[3] % P


def multiples(point):
    """The multiples of a point from 0 to 15."""
    out = [ZERO]
    for _ in range(15):
        out.append(add(out[-1], point))
    return out


def multiply(scalar, point):
    table, out = multiples(point), ZERO
    for at in reversed(range(0, scalar.bit_length(), 4)):
        out = add(twice(twice(twice(twice(out)))), table[scalar >> at & 15])
    return out


@functools.cache
def windows():
    """For each i, the multiples of 16ⁱ times the generator from 0 to 15."""
    point, out = G, []
    for _ in range(64):
        out.append(multiples(point))
        point = twice(out[-1][8])
    return out


def multiply_generator(scalar):
    out = ZERO
    for i, table in enumerate(windows()):
        out = add(out, table[scalar % ORDER >> 4 * i & 15])
    return out


def generator():
    y = 4 * pow(5, -1, P) % P
    x = absolute(sqrt_ratio(y * y - 1, D * y * y + 1)[1])
    return x, y, 1, x * y % P


G = generator()


# ristretto255.

def decode(data):
    s = number(data)
    need(s < P and not negative(s), "a number that is no canonical point's")
    ss = s * s % P
    u1, u2 = (1 - ss) % P, (1 + ss) % P
    v = (-(D * u1 * u1) - u2 * u2) % P
    square, inv = sqrt_ratio(1, v * u2 * u2 % P)
    dx = inv * u2 % P
    x = absolute(2 * s * dx)
    y = u1 * inv * dx * v % P
    need(square and not negative(x * y) and y, "a number that is no point's")
    return x, y, 1, x * y % P


def encode(point):
    x, y, z, t = point
    u1, u2 = (z + y) * (z - y) % P, x * y % P
    inv = sqrt_ratio(1, u1 * u2 * u2 % P)[1]
    d1, d2 = inv * u1 % P, inv * u2 % P
    z_inv = d1 * d2 * t % P
    if negative(t * z_inv):
        x, y, d = y * ROOT % P, x * ROOT % P, d1 * INVSQRT % P
    else:
        d = d2
    if negative(x * z_inv):
        y = -y
    return absolute(d * (z - y)).to_bytes(32, "little")


def elligator(data):
    t = (number(data) & 2**255 - 1) % P
    r = ROOT * t * t % P
    u = (r + 1) * (1 - D * D) % P
    v = (-1 - r * D) * (r + D) % P
    square, s = sqrt_ratio(u, v)
    c = -1
    if not square:
        s, c = -absolute(s * t) % P, r
    n = (c * (r - 1) * (D - 1) ** 2 - v) % P
    w0, w1, w2, w3 = 2 * s * v % P, n * ADD % P, (1 - s * s) % P, (1 + s * s) % P
    return w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P


def uniform(data):
    """The point that RFC 9496 derives from 64 bytes."""
    return add(*map(elligator, pieces(data, 32)))


# Ed25519.

def ed_encode(point):
    x, y, z, _ = point
    inverse = pow(z, -1, P)
    return (y * inverse % P | negative(x * inverse) << 255).to_bytes(32, "little")


def ed_decode(data):
    """Decodes a point. It must be canonical and not of low order."""
    y, sign = number(data) & 2**255 - 1, data[31] >> 7
    square, x = sqrt_ratio(y * y - 1, D * y * y + 1)
    need(y < P and square and (x or not sign), "no point of Ed25519")
    x = -x % P if sign else x
    point = x, y, 1, x * y % P
    need(ed_encode(twice(twice(twice(point)))) != ed_encode(ZERO), "a point of low order")
    return point


def ed_expand(secret):
    wide = hashlib.sha512(secret).digest()
    return number(wide[:32]) & (2**254 - 8) | 2**254, wide[32:]


@functools.cache
def ed_public(secret):
    return ed_encode(multiply_generator(ed_expand(secret)[0]))


def ed_challenge(r, key, message):
    return number(hashlib.sha512(r + key + message).digest()) % ORDER


def ed_sign(secret, message):
    scalar, prefix = ed_expand(secret)
    nonce = number(hashlib.sha512(prefix + message).digest()) % ORDER
    r = ed_encode(multiply_generator(nonce))
    s = (nonce + ed_challenge(r, ed_public(secret), message) * scalar) % ORDER
    return r + s.to_bytes(32, "little")


def ed_verify(key, message, signature):
    """Strict verification: canonical encodings, no point of low order, no cofactor."""
    need(len(signature) == 64, "a signature of another length")
    r, s = signature[:32], number(signature[32:])
    need(s < ORDER, "s is not below the order")
    point, _ = ed_decode(key), ed_decode(r)
    h = ed_challenge(r, key, message)
    if ed_encode(add(multiply_generator(s), multiply(h, minus(point)))) != r:
        raise Refused("a signature that does not fit")
