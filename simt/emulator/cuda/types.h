#pragma once

// Vector types, with the sizes and alignments that vector loads and stores need.

#define SIMT_VECTORS(T, name, align2, align4)            \
  struct name##1 {                                       \
    T x;                                                 \
  };                                                     \
  struct alignas(align2) name##2 {                       \
    T x, y;                                              \
  };                                                     \
  struct name##3 {                                       \
    T x, y, z;                                           \
  };                                                     \
  struct alignas(align4) name##4 {                       \
    T x, y, z, w;                                        \
  };                                                     \
  constexpr name##1 make_##name##1(T x) {                \
    return {x};                                          \
  }                                                      \
  constexpr name##2 make_##name##2(T x, T y) {           \
    return {x, y};                                       \
  }                                                      \
  constexpr name##3 make_##name##3(T x, T y, T z) {      \
    return {x, y, z};                                    \
  }                                                      \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { \
    return {x, y, z, w};                                 \
  }

SIMT_VECTORS(signed char, char, 2, 4)
SIMT_VECTORS(unsigned char, uchar, 2, 4)
SIMT_VECTORS(short, short, 4, 8)
SIMT_VECTORS(unsigned short, ushort, 4, 8)
SIMT_VECTORS(int, int, 8, 16)
SIMT_VECTORS(unsigned int, uint, 8, 16)
SIMT_VECTORS(long, long, 16, 16)
SIMT_VECTORS(unsigned long, ulong, 16, 16)
SIMT_VECTORS(long long, longlong, 16, 16)
SIMT_VECTORS(unsigned long long, ulonglong, 16, 16)
SIMT_VECTORS(float, float, 8, 16)
SIMT_VECTORS(double, double, 16, 16)
#undef SIMT_VECTORS

struct dim3 {
  unsigned x, y, z;
  // Implicit, as CUDA's is: {.grid = 7}.
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
