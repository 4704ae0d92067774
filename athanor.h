#pragma once

/// Everything a user needs, in one namespace: athanor.

#include "autograd/checkpoint.h"
#include "autograd/conv.h"
#include "autograd/creation.h"
#include "autograd/dropout.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "autograd/loss.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/parameter.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "tensor/tensor.h"
