"""Logarithm, exponential, sine and cosine with the same bits as fdlibm and its port in musl."""
import math
import struct

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
INVERSE_LN2 = 1.44269504088896338700
EXP = (1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05,
       -1.65339022054652515390e-06, 4.13813679705723846039e-08)
LOG_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01,
           1.479819860511658591e-01)
LOG_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
SIN = (-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
       2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10)
COS = (4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
       -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11)
QUARTER_1, QUARTER_1_REST = 1.57079632673412561417e+00, 6.07710050650619224932e-11  # π/2
QUARTER_2, QUARTER_2_REST = 6.07710050630396597660e-11, 2.02226624879595063154e-21
QUARTER_3, QUARTER_3_REST = 2.02226624871116645580e-21, 8.47842766036889956997e-32


def high(x):
    """The upper 32 bits of a non-negative double."""
    return struct.unpack("<Q", struct.pack("<d", x))[0] >> 32


def log(x):
    """The logarithm of a normal positive number."""
    bits, = struct.unpack("<Q", struct.pack("<d", x))
    upper = (bits >> 32) + 0x3FF00000 - 0x3FE6A09E
    k = (upper >> 20) - 0x3FF
    upper = (upper & 0xFFFFF) + 0x3FE6A09E
    x, = struct.unpack("<d", struct.pack("<Q", upper << 32 | bits & 0xFFFFFFFF))
    f = x - 1.0
    half = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (LOG_EVEN[0] + w * (LOG_EVEN[1] + w * LOG_EVEN[2]))
    odd = z * (LOG_ODD[0] + w * (LOG_ODD[1] + w * (LOG_ODD[2] + w * LOG_ODD[3])))
    return s * (half + (odd + even)) + k * LN2_LOW - half + f + k * LN2_HIGH


def reduced(x):
    """Reduces an angle of up to 2π to quarter turns and a rest in two parts."""
    upper = high(x)
    if upper <= 0x3FE921FB:
        return 0, x, 0.0
    if upper & 0xFFFFF != 0x921FB and upper not in (0x4012D97C, 0x401921FB):
        n = 1 + sum(upper > bound for bound in (0x4002D97C, 0x400F6A7A, 0x4015FDBC))
        z = x - n * QUARTER_1
        y = z - n * QUARTER_1_REST
        return n, y, (z - y) - n * QUARTER_1_REST
    n = round(x * 6.36619772367581382433e-01)
    r, w = x - n * QUARTER_1, n * QUARTER_1_REST
    for lost, part, rest in ((16, QUARTER_2, QUARTER_2_REST), (49, QUARTER_3, QUARTER_3_REST)):
        if (upper >> 20) - (high(abs(r - w)) >> 20) > lost:
            before, w = r, n * part
            r = before - w
            w = n * rest - ((before - r) - w)
    y = r - w
    return n, y, (r - y) - w


def sin_part(x, y):
    z = x * x
    w, v = z * z, z * x
    r = SIN[1] + z * (SIN[2] + z * SIN[3]) + z * w * (SIN[4] + z * SIN[5])
    return x - ((z * (0.5 * y - v * r) - y) - v * SIN[0]) if y else x + v * (SIN[0] + z * r)


def cos_part(x, y):
    z = x * x
    w = z * z
    r = z * (COS[0] + z * (COS[1] + z * COS[2])) + w * w * (COS[3] + z * (COS[4] + z * COS[5]))
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * r - x * y))


def cos_sin(x):
    n, y, rest = reduced(x)
    c, s = cos_part(y, rest), sin_part(y, rest)
    return ((c, s), (-s, c), (-c, -s), (s, -c))[n % 4]


def normals(words):
    """Two normals from each two words."""
    out = []
    for x, y in words:
        u = ((x >> 11) + 1) * 2.0**-53
        v = (y >> 11) * 2.0**-53
        radius = math.sqrt(-2.0 * log(u))
        c, s = cos_sin(2 * math.pi * v)
        out += [radius * c, radius * s]
    return out


def exp(x):
    """The exponential function, of numbers whose result is normal."""
    size, sign = abs(x), x < 0
    if high(size) <= 0x3E300000:
        return 1.0 + x
    k, low = 0, 0.0
    if high(size) > 0x3FD62E42:
        k = 1 - 2 * sign
        if high(size) >= 0x3FF0A2B2:
            k = int(INVERSE_LN2 * x + 0.5 * k)
        x, low = x - k * LN2_HIGH, k * LN2_LOW
    upper, x = x, x - low
    z = x * x
    c = x - z * (EXP[0] + z * (EXP[1] + z * (EXP[2] + z * (EXP[3] + z * EXP[4]))))
    return math.ldexp(1.0 + (x * c / (2.0 - c) - low + upper), k)
