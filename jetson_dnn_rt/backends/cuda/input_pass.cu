// The fused input pass on a CUDA device: resize, colour, normalisation and padding of one frame,
// read in place and written once, straight into the network's input.
//
// The arithmetic is that of the pass on the CPU (jetson_dnn_rt/models/input/input_pass.py): cv2.resize's
// bilinear weights of 11 bits, from tables made on the host, and products and sums of floats
// that are not contracted (NVRTC gets --fmad=false). Interleaved colours and grey are bit-exact,
// YUV and Bayer within one step of a byte.
//
// NVRTC compiles it for the device at run time. A C++ compiler compiles it too: then
// `input_pass_host` does on the CPU what the launch does, which is how it is tested without a GPU.
// No header is included, since NVRTC has none.

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define DEVICE __device__ static inline
#else
#define DEVICE static inline
extern "C" float rintf(float);
#endif

// Two neighbours on one axis of a component, and their weights, which sum to 2048.
struct Tap {
    int first, second;
    int first_weight, second_weight;
};

// One component of the picture: a grid of bytes in the frame's memory, and the taps of each column
// and each row of the resized picture.
struct Component {
    const Tap *columns;
    const Tap *rows;
    int offset;      // bytes from the frame's first byte
    int row_step;    // bytes
    int pixel_step;  // bytes
    int unused;
    float shift_x, shift_y;  // of its centres, in half pixels of the resized picture
};

enum Kind { RGB = 0, YUV = 1, BAYER = 2 };

// Argument of a launch; jetson_dnn_rt/backends/cuda/input.py has the same structure.
struct Pass {
    const unsigned char *frame;
    float *input;
    long long channel_step, row_step, column_step;  // of the input, in floats
    int height, width;                              // of the input
    int top, left, resized_height, resized_width;   // position of the picture in it
    int kind;
    int order[3];  // which of red, green, blue each channel of the input is
    float factor[3], offset[3], padding[3];
    Component component[4];  // RGB: red, green, blue; YUV: y, u, v; BAYER: red, green, green, blue
};

DEVICE int sample(const unsigned char *frame, const Component &component, int x, int y)
{
    const Tap column = component.columns[x], row = component.rows[y];
    const unsigned char *upper =
        frame + component.offset + (long long)row.first * component.row_step;
    const unsigned char *lower =
        frame + component.offset + (long long)row.second * component.row_step;
    const long long first = (long long)column.first * component.pixel_step;
    const long long second = (long long)column.second * component.pixel_step;
    const int above = upper[first] * column.first_weight + upper[second] * column.second_weight;
    const int below = lower[first] * column.first_weight + lower[second] * column.second_weight;
    return (((row.first_weight * (above >> 4)) >> 16) + ((row.second_weight * (below >> 4)) >> 16) +
            2) >>
           2;
}

// To the nearest byte, halves to the even one.
DEVICE float round_to_byte(float value)
{
    const float whole = rintf(value);
    return whole < 0.0f ? 0.0f : whole > 255.0f ? 255.0f : whole;
}

DEVICE float limit_to_byte(int value)
{
    return (float)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// ITU-R BT.601, limited range, in the 10 bits of cv2.transform: y, u, v to red, green, blue.
DEVICE void convert_yuv(float color[3])
{
    const int y = 1192 * (int)color[0], u = (int)color[1], v = (int)color[2];
    color[0] = limit_to_byte((y + 1634 * v - 227750) >> 10);
    color[1] = limit_to_byte((y - 400 * u - 833 * v + 139252) >> 10);
    color[2] = limit_to_byte((y + 2066 * u - 283062) >> 10);
}

// Red and blue of a mosaic are half a pixel off the block's centre: corrected along the slope of
// the resized picture.
DEVICE float sample_shifted(const Pass &pass, int index, int x, int y)
{
    const Component &component = pass.component[index];
    const int left = x > 0 ? x - 1 : 0, up = y > 0 ? y - 1 : 0;
    const int right = x + 1 < pass.resized_width ? x + 1 : x;
    const int down = y + 1 < pass.resized_height ? y + 1 : y;
    const int slope_x =
        sample(pass.frame, component, right, y) - sample(pass.frame, component, left, y);
    const int slope_y = sample(pass.frame, component, x, down) - sample(pass.frame, component, x, up);
    const float value = (float)sample(pass.frame, component, x, y);
    return round_to_byte(value + (float)slope_x * component.shift_x +
                         (float)slope_y * component.shift_y);
}

// One pixel of the input, all its channels.
DEVICE void convert(const Pass &pass, int x, int y)
{
    float *pixel = pass.input + y * pass.row_step + x * pass.column_step;
    const int column = x - pass.left, row = y - pass.top;
    if (column < 0 || column >= pass.resized_width || row < 0 || row >= pass.resized_height) {
        for (int channel = 0; channel < 3; ++channel)
            pixel[channel * pass.channel_step] = pass.padding[channel];
        return;
    }
    float color[3];
    if (pass.kind == BAYER) {
        color[0] = sample_shifted(pass, 0, column, row);
        color[1] = round_to_byte(0.5f * (float)(sample(pass.frame, pass.component[1], column, row) +
                                                sample(pass.frame, pass.component[2], column, row)));
        color[2] = sample_shifted(pass, 3, column, row);
    } else {
        for (int index = 0; index < 3; ++index)
            color[index] = (float)sample(pass.frame, pass.component[index], column, row);
        if (pass.kind == YUV)
            convert_yuv(color);
    }
    for (int channel = 0; channel < 3; ++channel) {
        const float value = color[pass.order[channel]] * pass.factor[channel];
        pixel[channel * pass.channel_step] = value + pass.offset[channel];
    }
}

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

extern "C" __global__ void input_pass(const Pass pass)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < pass.width && y < pass.height)
        convert(pass, x, y);
}

#else

extern "C" void input_pass_host(const Pass *pass)
{
    for (int y = 0; y < pass->height; ++y)
        for (int x = 0; x < pass->width; ++x)
            convert(*pass, x, y);
}

#endif
